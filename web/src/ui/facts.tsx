/** Lists of names with values, and the cards that pages consist of. */
import type { ReactNode } from 'react';
import { Link } from 'wouter';

/** A list of facts. Facts without a value are omitted. */
export function Facts({ facts }: { facts: readonly (readonly [name: string, value: ReactNode] | null | false)[] }) {
  return (
    <dl className="facts">
      {facts.map(
        (fact) =>
          fact && (
            <div key={fact[0]} style={{ display: 'contents' }}>
              <dt>{fact[0]}</dt>
              <dd>{fact[1]}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

export function Card({ title, actions, children, flush = false }: { title?: ReactNode; actions?: ReactNode; children: ReactNode; /** The content brings its own padding. */ flush?: boolean }) {
  return (
    <section className="card">
      {title !== undefined && (
        <div className="card-head">
          <h2>{title}</h2>
          {actions && <div className="row">{actions}</div>}
        </div>
      )}
      {flush ? children : <div className="card-body">{children}</div>}
    </section>
  );
}

/** A number with a link to the page about it. */
export function Tile({ label, value, note, bad = false, href }: { label: string; value: ReactNode; note?: string; bad?: boolean; href?: string }) {
  const inside = (
    <>
      <div className="tile-label">{label}</div>
      <div className="tile-value">{value}</div>
      <div className={`tile-note ${bad ? 'bad' : ''}`}>{note}</div>
    </>
  );
  return href ? (
    <Link href={href} className="tile">
      {inside}
    </Link>
  ) : (
    <div className="tile">{inside}</div>
  );
}

/** Labels as key=value. */
export function Tags({ labels, none = 'none' }: { labels: Record<string, string>; none?: string }) {
  const entries = Object.entries(labels).sort(([a], [b]) => a.localeCompare(b));
  if (entries.length === 0) return <span className="muted">{none}</span>;
  return (
    <span className="tags">
      {entries.map(([k, v]) => (
        <span key={k} className="tag">
          {v ? `${k}=${v}` : k}
        </span>
      ))}
    </span>
  );
}
