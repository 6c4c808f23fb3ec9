/** The fleet's activity log: live, and back in time. */
import { useMemo, useState } from 'react';
import { useParam } from '../ui/address';
import { page } from '../ui/client';
import { Card } from '../ui/facts';
import { Icon } from '../ui/icon';
import { Empty, Failure } from '../ui/notice';
import { count } from '../ui/number';
import { Page } from '../ui/page';
import { usePages } from '../ui/paging';
import { Choice } from '../ui/table';
import { ActivityList } from './activity-list';
import { api, type ActivityEntry } from './api';
import { mergeActivity, useLive } from './live';
import { SiteChoice } from './site-choice';

type LevelFilter = '' | ActivityEntry['level'];
const levels: readonly LevelFilter[] = ['', 'info', 'ok', 'warn', 'error', 'chapter'];

export function Activity() {
  const { activity } = useLive();
  const [level, setLevel] = useParam<LevelFilter>('level', '', levels);
  const [site, setSite] = useParam('site', '');
  const [paused, setPaused] = useState<readonly ActivityEntry[]>();
  const pages = usePages(['activity', 'list', site], (cursor, signal) => page(api.GET('/activity', { params: { query: { cursor, limit: 250, ...(site && { site_id: site }) } }, signal })), { refreshSeconds: 3600 });

  const loaded = pages.rows;
  const all = useMemo(() => {
    if (!loaded) return undefined;
    const fresh = (activity ?? []).filter((e) => !site || e.site_id === site);
    return mergeActivity(loaded, [...fresh].reverse(), Infinity).sort((a, b) => Number(b.id) - Number(a.id));
  }, [loaded, activity, site]);
  const shown = (paused ?? all)?.filter((e) => !level || e.level === level);
  return (
    <Page title="Activity" lead="What happens in the fleet, for people to read. What proves it is the audit log.">
      <Card flush>
        <div className="table-tools">
          <Choice label="Level" value={level} options={levels.map((l) => ({ value: l, label: l === '' ? 'All levels' : l }))} onChange={setLevel} />
          <SiteChoice
            value={site}
            onChange={(id) => {
              setSite(id);
              setPaused(undefined);
            }}
          />
          <span className="table-end">
            <button type="button" className="btn" aria-pressed={paused !== undefined} onClick={() => setPaused(paused ? undefined : all)}>
              <Icon name={paused ? 'refresh' : 'pause'} /> {paused ? 'Follow again' : 'Pause'}
            </button>
          </span>
        </div>
        {!shown ? (
          <div className="card-body">{pages.error !== undefined ? <Failure error={pages.error} retry={pages.refresh} /> : <span className="skeleton" />}</div>
        ) : shown.length === 0 ? (
          <Empty icon="activity" title={level || site ? 'No line matches' : 'Nothing has happened yet'} />
        ) : (
          <ActivityList entries={shown} />
        )}
        <div className="table-foot">
          <span role="status">
            {shown ? `${count(shown.length)} lines, ` : ''}
            {paused ? 'paused' : 'following'}
            {level ? '. The level filters the loaded lines.' : ''}
          </span>
          {pages.hasMore && (
            <button type="button" className="btn btn-small" disabled={pages.loadingMore} onClick={pages.loadMore}>
              {pages.loadingMore ? 'Loading…' : 'Load older'}
            </button>
          )}
        </div>
      </Card>
    </Page>
  );
}
