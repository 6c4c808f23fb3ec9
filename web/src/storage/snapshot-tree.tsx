/** A list of snapshots, each with its actions and with what was made of it. */
import type { ReactNode } from 'react';
import { Icon } from '../ui/icon';
import { Menu, type MenuAction } from '../ui/menu';
import { Failure } from '../ui/notice';
import type { Pages } from '../ui/paging';

export interface SnapshotNode {
  key: string;
  name: string;
  line: ReactNode;
  actions: readonly MenuAction[];
  /** What was made of it. */
  below?: { label: string; items: readonly { key: string; content: ReactNode }[] };
}

export function SnapshotTree<T>({ label, pages, node, empty }: { label: string; pages: Pages<T>; node: (snapshot: T) => SnapshotNode; /** In place of no snapshot. */ empty: ReactNode }) {
  if (pages.error !== undefined && !pages.rows) return <Failure error={pages.error} retry={pages.refresh} />;
  if (!pages.rows) return <span className="skeleton" />;
  if (pages.rows.length === 0) return empty;
  return (
    <div className="stack">
      <div className="tree" role="group" aria-label={label}>
        <ul>
          {pages.rows.map(node).map(({ key: id, name, line, actions, below }) => (
            <li key={id}>
              <div className="tree-node">
                {line}
                <Menu label={`Actions for ${name}`} button={<Icon name="more" />} actions={actions} />
              </div>
              {below && below.items.length > 0 && (
                <ul aria-label={below.label}>
                  {below.items.map(({ key, content }) => (
                    <li key={key}>
                      <div className="tree-node">{content}</div>
                    </li>
                  ))}
                </ul>
              )}
            </li>
          ))}
        </ul>
      </div>
      {pages.hasMore && (
        <div>
          <button type="button" className="btn btn-small" disabled={pages.loadingMore} onClick={pages.loadMore}>
            {pages.loadingMore ? 'Loading…' : 'Load more'}
          </button>
        </div>
      )}
    </div>
  );
}
