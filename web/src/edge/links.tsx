/** Links to the objects that other pages mention. */
import { Link } from 'wouter';
import { Copyable } from '../ui/copy';
import { shortId, useSites } from './api';

/** A link to a site with its name, or `none` if there is no site. */
export function SiteLink({ id, none = 'none' }: { id: string; none?: string }) {
  const { name } = useSites();
  if (!id) return <span className="muted">{none}</span>;
  return <Link href={`/sites/${encodeURIComponent(id)}`}>{name(id)}</Link>;
}

export const devicePath = (id: string) => `/devices/${encodeURIComponent(id)}`;

/** A shortened ID. The whole ID is the title, and is what the button copies. */
export function Id({ id }: { id: string }) {
  return (
    <Copyable text={id}>
      <code title={id} className="nowrap">
        {shortId(id)}
      </code>
    </Copyable>
  );
}
