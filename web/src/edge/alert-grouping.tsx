/** Alerts counted by what they have in common. Choosing a group narrows the list below to it. */
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { body } from '../ui/client';
import { count } from '../ui/number';
import { words } from '../ui/status';
import { Choice } from '../ui/table';
import { api, useSites, type Alert } from './api';

export type GroupBy = 'kind' | 'site';

/** The groups that are shown. Smaller ones are reached by the filters of the list. */
const shown = 8;

interface Props {
  by: GroupBy;
  onBy: (by: GroupBy) => void;
  status: 'firing' | 'resolved' | 'all';
  /** The kind and the site to which the list is narrowed; empty: all. */
  kind: '' | Alert['kind'];
  site: string;
  onKind: (kind: '' | Alert['kind']) => void;
  onSite: (site: string) => void;
}

export function AlertGrouping({ by, onBy, status, kind, site, onKind, onSite }: Props) {
  const { name } = useSites();
  const { data } = useQuery({
    queryKey: ['alerts', 'groups', by, status],
    queryFn: ({ signal }) => body(api.GET('/alerts/groups', { params: { query: { by, status } }, signal })),
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  });
  // Alerts of no site, about routes for example, cannot be asked for.
  const groups = (data ?? []).filter((g) => g.key !== '');
  const chosen = by === 'kind' ? kind : site;
  const choose = (key: string) => (by === 'kind' ? onKind(key as Alert['kind']) : onSite(key));
  return (
    <div className="row groups" role="group" aria-label="Alerts in groups">
      <Choice
        label="Group by"
        value={by}
        options={[
          { value: 'kind', label: 'By kind' },
          { value: 'site', label: 'By site' },
        ]}
        onChange={onBy}
      />
      {groups.slice(0, shown).map((g) => {
        const handled = [g.acknowledged && `${count(g.acknowledged)} acknowledged`, g.silenced && `${count(g.silenced)} silenced`].filter(Boolean).join(', ');
        return (
          <button key={g.key} type="button" className="btn btn-small" aria-pressed={chosen === g.key} onClick={() => choose(chosen === g.key ? '' : g.key)}>
            {by === 'kind' ? words(g.key) : name(g.key)} <b>{count(g.count)}</b>
            {handled && <span className="muted">{handled}</span>}
          </button>
        );
      })}
      {groups.length > shown && <span className="muted small">and {count(groups.length - shown)} smaller groups</span>}
    </div>
  );
}
