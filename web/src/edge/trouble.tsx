/** The firing alerts about one thing, on its page: what is wrong, since when, and what to do. */
import { useQuery } from '@tanstack/react-query';
import { body } from '../ui/client';
import { Menu } from '../ui/menu';
import { Notice } from '../ui/notice';
import { plural } from '../ui/number';
import { Status } from '../ui/status';
import { DateTime, Time } from '../ui/time';
import { Link } from 'wouter';
import { advice } from './advice';
import { useAlertActions } from './alert-actions';
import { api, type Alert } from './api';

/** How many are shown in full. */
const shown = 3;
/** How many are read, to show the most severe first. */
const read = 100;

const rank = (a: Alert) => (a.severity === 'critical' ? 0 : 1);

/** Those of a site, or those about the thing with an ID. */
export function Trouble({ of }: { of: { site_id: string } | { subject: string } }) {
  const { actions, dialog } = useAlertActions();
  const query = { status: 'firing' as const, limit: read, ...of };
  const { data = [] } = useQuery({ queryKey: ['alerts', 'of', query], queryFn: ({ signal }) => body(api.GET('/alerts', { params: { query }, signal })), refetchInterval: 10_000 });
  const those = [...data].sort((a, b) => rank(a) - rank(b));
  if (those.length === 0) return null;
  return (
    <section className="stack-tight" aria-label="What needs attention">
      {those.slice(0, shown).map((a) => (
        <Notice
          key={a.id}
          tone={a.silenced_until ? 'idle' : a.severity === 'critical' ? 'bad' : 'warn'}
          action={<Menu label={`Actions for the alert “${a.message}”`} className="btn-small" button="Handle" actions={actions(a)} />}
        >
          <strong>{a.message}</strong>, since <Time at={a.first_seen_at} />.{' '}
          {a.acknowledged_at && <Status tone="info" icon="check">{`acknowledged by ${a.acknowledged_by}`}</Status>}
          {a.silenced_until && (
            <>
              {' '}
              <Status tone="idle">silenced</Status> until <DateTime at={a.silenced_until} />
            </>
          )}
          <div className="small">{advice[a.kind]}</div>
        </Notice>
      ))}
      {those.length > shown && (
        <p>
          <Link href={'site_id' in of ? `/alerts?site=${encodeURIComponent(of.site_id)}` : '/alerts'}>and {those.length >= read ? 'many more alerts' : plural(those.length - shown, 'more alert', 'more alerts')}</Link>
        </p>
      )}
      {dialog}
    </section>
  );
}
