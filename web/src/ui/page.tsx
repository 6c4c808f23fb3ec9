/** The head of every page: title, breadcrumbs and actions. */
import { createContext, use, useEffect, useRef, type ReactNode } from 'react';
import { createPortal } from 'react-dom';
import { Link } from 'wouter';

/** The element for the breadcrumbs, and the product's name for the document's title. */
export const PageContext = createContext<{ crumbs: HTMLElement | null; product: string }>({ crumbs: null, product: '' });

let first = true;

export interface PageProps {
  title: string;
  /** The parent pages, outermost first. */
  above?: readonly { title: string; href: string }[];
  lead?: ReactNode;
  /** Next to the title: a status. */
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
    // After navigation, screen readers start at the new page's title, and the page is scrolled to
    // the top. Focus alone would leave the title behind the bar, or the content above it out of
    // view.
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
