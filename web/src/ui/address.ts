/**
 * What a page shows, in the query of its address: filters, order, and how much is loaded. So Back
 * and a link that was sent to a colleague lead to the same rows. Values replace the current entry of
 * the history: Back leaves the page instead of undoing filters one by one.
 */
import { useLocation, useSearchParams } from 'wouter';

/** The query with a parameter changed. An empty value removes it. */
export function withParam(search: string, name: string, value: string): string {
  const params = new URLSearchParams(search);
  if (value === '') params.delete(name);
  else params.set(name, value);
  const text = params.toString();
  return text && `?${text}`;
}

/**
 * A value in the address. `usual` is left out of it. Values that are not `allowed`, which a person
 * may have typed, count as the usual one.
 */
export function useParam<V extends string = string>(name: string, usual: NoInfer<V>, allowed?: readonly V[]): readonly [V, (value: V) => void] {
  const [params] = useSearchParams();
  const [, navigate] = useLocation();
  const found = params.get(name) as V | null;
  const value = found !== null && (allowed?.includes(found) ?? true) ? found : usual;
  // The address may have changed since this was rendered, for example by another value.
  const set = (to: V) => navigate(location.pathname + withParam(location.search, name, to === usual ? '' : to) + location.hash, { replace: true });
  return [value, set];
}
