/** The templates that a form can propose. */
import { useQuery } from '@tanstack/react-query';
import { body } from '../../ui/client';
import { api, pageLimit, type Template } from '../api';

/** The templates that VMs can start from, by name; none until they are known. */
export function useTemplates(): Template[] {
  const templates = useQuery({ queryKey: ['templates', 'names'], queryFn: ({ signal }) => body(api.GET('/v1/templates', { params: { query: { limit: pageLimit } }, signal })) });
  return templates.data?.filter((t) => t.usable) ?? [];
}
