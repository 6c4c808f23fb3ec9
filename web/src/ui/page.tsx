/** The head of every page: its title, where it stands, what one can do here. */
import { createContext, use, useEffect, useRef, type ReactNode } from 'react';
import { createPortal } from 'react-dom';
import { Link } from 'wouter';

/** Where the shell shows the breadcrumbs, and what the document is called after. */
export const PageContext = createContext<{ crumbs: HTMLElement | null; product: string }>({ crumbs: null, product: '' });

let first = true;

export interface PageProps {
  title: string;
  /** The pages above, outermost first. */
  above?: readonly { title: string; href: string }[];
  lead?: ReactNode;
  /** Beside the title: a status. */
  badge?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

export function Page({ title, above = [], lead, badge, actions, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  const { crumbs, product } = use(PageContext);
  useEffect(() => {
    document.title = `${title} · ${product}`;
  }, [title, product]);
  useEffect(() => {
    // After going from page to page, screen readers begin at the new page's title, and everybody at its top:
    // focus alone would leave the title behind the bar, or what stands above it out of sight.
    if (!first) {
      window.scrollTo(0, 0);
      heading.current?.focus({ preventScroll: true });
    }
    first = false;
  }, []);
  return (
    <>
      {crumbs &&
        createPortal(
          <nav aria-label="Breadcrumbs">
            <ol className="crumbs">
              {above.map((a) => (
                <li key={a.href}>
                  <Link href={a.href}>{a.title}</Link>
                </li>
              ))}
              <li aria-current="page">{title}</li>
            </ol>
          </nav>,
          crumbs,
        )}
      <div className="page-head">
        <div>
          <div className="page-title">
            <h1 ref={heading} tabIndex={-1}>
              {title}
            </h1>
            {badge}
          </div>
          {lead && <p className="page-lead">{lead}</p>}
        </div>
        {actions && <div className="row">{actions}</div>}
      </div>
      {children}
    </>
  );
}
