/** A list of activity entries. */
import { Clock } from '../ui/time';
import type { ActivityEntry } from './api';
import { SiteLink } from './links';
import { Level } from './states';

export function ActivityList({ entries }: { entries: readonly ActivityEntry[] }) {
  return (
    <ul className="log">
      {entries.map((e) => (
        <li key={e.id}>
          <Clock at={e.time} />
          <span>
            <Level level={e.level} />
          </span>
          <span>
            {e.message}
            {e.site_id && (
              <>
                {' '}
                <SiteLink id={e.site_id} />
              </>
            )}
          </span>
        </li>
      ))}
    </ul>
  );
}
