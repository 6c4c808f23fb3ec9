/**
 * The frame of every console: navigation, breadcrumbs, theme, user, and the state of live updates.
 */
import { useEffect, useId, useMemo, useRef, useState, type ReactNode } from 'react';
import { Link, useLocation } from 'wouter';
import { Icon, Logo, type IconName } from './icon';
import { PageContext } from './page';
import { ShortcutsHelp, useShortcuts } from './shortcuts';
import type { StreamState } from './stream';
import type { Tone } from './status';
import { setTheme, useTheme, type Theme } from './theme';
import { Toasts } from './toast';

export interface NavItem {
  label: string;
  href: string;
  icon: IconName;
  /** The letter that opens this page after `g`. */
  key: string;
  /** The number of things there that need attention. */
  count?: number | undefined;
}

export interface NavGroup {
  /** Empty for items without a heading. */
  label: string;
  items: readonly NavItem[];
}

const liveWords: Record<StreamState, [tone: Tone, text: string]> = {
  connecting: ['info', 'Connecting'],
  live: ['ok', 'Live'],
  reconnecting: ['warn', 'Reconnecting'],
  failed: ['bad', 'Not live'],
};

/** The signed-in user. */
export interface Who {
  name: string;
  /** A short description of their permissions. */
  note?: string;
}

interface SideProps {
  service: string;
  groups: readonly NavGroup[];
  /** Undefined if the service requires no credentials. */
  who?: Who | undefined;
  /** Undefined if nobody has signed in. */
  onSignOut?: (() => void) | undefined;
}

export function Shell({ service, groups, who, live, onSignOut, children }: SideProps & { live: StreamState; children: ReactNode }) {
  const [crumbs, setCrumbs] = useState<HTMLElement | null>(null);
  const [help, setHelp] = useState(false);
  const [drawer, setDrawer] = useState(false);
  const context = useMemo(() => ({ crumbs, product: `Mainstay ${service}` }), [crumbs, service]);
  const jumps = groups.flatMap((g) => g.items);
  useShortcuts(jumps, () => setHelp(true));
  const [tone, text] = liveWords[live];

  const side = <Side service={service} groups={groups} who={who} onSignOut={onSignOut} onFollow={() => setDrawer(false)} />;
  return (
    <PageContext value={context}>
      <a className="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <div className="shell">
        {side}
        <div className="frame">
          <header className="top">
            <button type="button" className="btn btn-quiet btn-icon menu-button" aria-label="Open the navigation" aria-expanded={drawer} onClick={() => setDrawer(true)}>
              <Icon name="menu" />
            </button>
            <div className="top-crumbs" ref={setCrumbs} />
            <span className={`live tone-${tone}`} role="status" title={`Live updates: ${text.toLowerCase()}`}>
              <span className="live-dot" />
              <span className="live-text">{text}</span>
            </span>
            <button type="button" className="btn btn-quiet btn-icon" aria-label="Keyboard shortcuts" title="Keyboard shortcuts" onClick={() => setHelp(true)}>
              ?
            </button>
          </header>
          <main id="main" className="page" tabIndex={-1}>
            {children}
          </main>
        </div>
      </div>
      {drawer && <Drawer onClose={() => setDrawer(false)}>{side}</Drawer>}
      {help && <ShortcutsHelp jumps={jumps} onClose={() => setHelp(false)} />}
      <Toasts />
    </PageContext>
  );
}

/** The fragment of the address is used by the page's tabs, so the link moves the focus itself. */
function skip(event: React.MouseEvent): void {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

function Side({ service, groups, who, onSignOut, onFollow }: SideProps & { onFollow: () => void }) {
  return (
    <div className="side">
      <Link href="/" className="brand" onClick={onFollow}>
        <Logo />
        <span className="brand-name">
          Mainstay <span className="brand-service">{service}</span>
        </span>
      </Link>
      <nav className="nav" aria-label="Main">
        {groups.map((g) => (
          <Group key={g.label} group={g} onFollow={onFollow} />
        ))}
      </nav>
      <div className="side-foot stack-tight">
        {who && (
          <div>
            <div className="who">{who.name}</div>
            {who.note && <div className="muted small">{who.note}</div>}
          </div>
        )}
        <div className="row spread">
          <ThemeChoice />
          {onSignOut && (
            <button type="button" className="btn btn-small" onClick={onSignOut}>
              Sign out
            </button>
          )}
        </div>
      </div>
    </div>
  );
}

function Group({ group, onFollow }: { group: NavGroup; onFollow: () => void }) {
  const [path] = useLocation();
  const [open, setOpen] = useState(true);
  const id = useId();
  const list = (
    <ul id={id} hidden={!open}>
      {group.items.map((item) => {
        const here = item.href === '/' ? path === '/' : path === item.href || path.startsWith(`${item.href}/`);
        return (
          <li key={item.href}>
            <Link href={item.href} className="nav-link" aria-current={here ? 'page' : undefined} onClick={onFollow}>
              <Icon name={item.icon} />
              {item.label}
              {item.count ? <span className="nav-count">{item.count}</span> : null}
            </Link>
          </li>
        );
      })}
    </ul>
  );
  if (!group.label) return list;
  return (
    <div className="nav-group">
      <button type="button" aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>
        {group.label}
        <Icon name="chevron" />
      </button>
      {list}
    </div>
  );
}

function Drawer({ onClose, children }: { onClose: () => void; children: ReactNode }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    // A click next to the drawer closes it. On the keyboard, Escape does the same.
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-noninteractive-element-interactions
    <dialog ref={ref} className="drawer" aria-label="Navigation" onClose={onClose} onClick={(e) => e.target === ref.current && onClose()}>
      {children}
    </dialog>
  );
}

function ThemeChoice() {
  const theme = useTheme();
  return (
    <select className="input theme" aria-label="Theme" value={theme} onChange={(e) => setTheme(e.target.value as Theme)}>
      <option value="system">System</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
}
