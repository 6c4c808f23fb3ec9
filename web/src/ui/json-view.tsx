/** JSON as a collapsible tree. */
import { CopyButton } from './copy';

/**
 * The maximum number of entries shown per level, so that a large document does not freeze the page.
 */
const mostShown = 500;

export function JsonView({ value, label, openLevels = 2 }: { value: unknown; label: string; openLevels?: number }) {
  return (
    <div className="json" role="group" aria-label={label}>
      <div style={{ float: 'right' }}>
        <CopyButton text={JSON.stringify(value, null, 2)} label={`Copy ${label}`} />
      </div>
      <Node value={value} levels={openLevels} />
    </div>
  );
}

function Node({ name, value, levels }: { name?: string; value: unknown; levels: number }) {
  const key = name !== undefined && <span className="json-key">{name}: </span>;
  if (typeof value !== 'object' || value === null) {
    return (
      <div>
        {key}
        <Scalar value={value} />
      </div>
    );
  }
  const entries = Object.entries(value as Record<string, unknown>);
  const brackets = Array.isArray(value) ? '[]' : '{}';
  if (entries.length === 0) {
    return (
      <div>
        {key}
        {brackets}
      </div>
    );
  }
  return (
    <details open={levels > 0}>
      <summary>
        {key}
        <span className="muted">
          {brackets[0]} {entries.length} {brackets[1]}
        </span>
      </summary>
      <ul>
        {entries.slice(0, mostShown).map(([k, v]) => (
          <li key={k}>
            <Node name={k} value={v} levels={levels - 1} />
          </li>
        ))}
        {entries.length > mostShown && <li className="muted">and {entries.length - mostShown} more; copy the document to see all</li>}
      </ul>
    </details>
  );
}

function Scalar({ value }: { value: unknown }) {
  const kind = typeof value === 'string' ? 'string' : typeof value === 'number' ? 'number' : 'word';
  return <span className={`json-${kind}`}>{JSON.stringify(value)}</span>;
}
