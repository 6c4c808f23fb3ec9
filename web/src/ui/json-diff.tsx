/**
 * The difference of two JSON values, side by side if there is room, or else one below the other.
 */
import { useMemo, useSyncExternalStore } from 'react';
import { jsonLines, sideBySide, type DiffLine } from './json-lines';

const roomy = '(min-width: 760px)';

function useRoomy(): boolean {
  return useSyncExternalStore(
    (tell) => {
      const query = matchMedia(roomy);
      query.addEventListener('change', tell);
      return () => query.removeEventListener('change', tell);
    },
    () => matchMedia(roomy).matches,
  );
}

const marks = { same: ' ', added: '+', removed: '−' };

function Line({ line }: { line: DiffLine | null }) {
  const kind = line && line.kind !== 'same' ? line.kind : '';
  return (
    <>
      <td className={`mark ${kind}`}>
        {line && line.kind !== 'same' && <span className="visually-hidden">{line.kind}</span>}
        <span aria-hidden="true">{line ? marks[line.kind] : ''}</span>
      </td>
      <td className={kind}>{line?.text}</td>
    </>
  );
}

export function JsonDiff({ before, after, beforeLabel, afterLabel, same = 'Both are the same.' }: { before: unknown; after: unknown; beforeLabel: string; afterLabel: string; same?: string }) {
  const wide = useRoomy();
  const lines = useMemo(() => jsonLines(before, after), [before, after]);
  if (lines.every((l) => l.kind === 'same')) return <p className="muted">{same}</p>;
  return (
    <div className="diff-box">
      <table className="diff" aria-label={`${beforeLabel} compared with ${afterLabel}`}>
        <thead>
          <tr>
            {wide ? (
              <>
                <th className="mark" />
                <th scope="col">{beforeLabel}</th>
                <th className="mark" />
                <th scope="col">{afterLabel}</th>
              </>
            ) : (
              <>
                <th className="mark" />
                <th scope="col">
                  − {beforeLabel}, + {afterLabel}
                </th>
              </>
            )}
          </tr>
        </thead>
        <tbody>
          {wide
            ? sideBySide(lines).map((row, i) => (
                <tr key={i}>
                  <Line line={row.left} />
                  <Line line={row.right} />
                </tr>
              ))
            : lines.map((line, i) => (
                <tr key={i}>
                  <Line line={line} />
                </tr>
              ))}
        </tbody>
      </table>
    </div>
  );
}
