/**
 * The frame of every console: navigation, breadcrumbs, theme, user, and the state of live updates.
 */
import { useEffect, useId, useMemo, useRef, useState, type ReactNode } from 'react';
import { Link, useLocation } from 'wouter';
import { Icon, Logo, type IconName } from './icon';
import { PageContext } from './page';
import { Palette, usePaletteKey, type Find, type Found } from './palette';
import { reason } from './problem';
import { useOwnSession, useSession } from './session';
import { ShortcutsHelp, useShortcuts } from './shortcuts';
import type { StreamState } from './stream';
import type { Tone } from './status';
import { timeZone } from './time';
import { Switcher, switchTo, useServices } from './switcher';
import { setTheme, useTheme, type Theme } from './theme';
import { toast, Toasts } from './toast';

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

interface SideProps {
  service: string;
  /** The service's guide, by the name of its file in docs/services. */
  guide: string;
  groups: readonly NavGroup[];
}

interface ShellProps extends SideProps {
  live: StreamState;
  /** Finds objects for the command palette. */
  find?: Find;
  children: ReactNode;
}

/** Where the guides are: this project's own documents. */
const guides = 'https://github.com/mainstay-infra/mainstay/blob/main/docs/services/';

export function Shell({ service, guide, groups, live, find, children }: ShellProps) {
  const [crumbs, setCrumbs] = useState<HTMLElement | null>(null);
  const [help, setHelp] = useState(false);
  const [drawer, setDrawer] = useState(false);
  const [palette, setPalette] = useState(false);
  const services = useServices();
  const context = useMemo(() => ({ crumbs, product: `Mainstay ${service}` }), [crumbs, service]);
  const jumps = groups.flatMap((g) => g.items);
  useShortcuts(jumps, () => setHelp(true));
  usePaletteKey(() => setPalette(true));
  const places: Found[] = [
    ...jumps.map((j) => ({ label: j.label, href: j.href, icon: j.icon, kind: 'page' })),
    ...services.filter((s) => !s.current).map((s) => ({ label: s.title, href: s.url, icon: 'node' as const, kind: 'service', run: () => switchTo(s) })),
  ];
  const [tone, text] = liveWords[live];

  const side = <Side service={service} guide={guide} groups={groups} onFollow={() => setDrawer(false)} />;
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
            <button type="button" className="btn btn-quiet palette-button" aria-label="Go to" aria-keyshortcuts="Control+K" onClick={() => setPalette(true)}>
              <Icon name="search" /> <span className="palette-word">Go to</span> <kbd>Ctrl K</kbd>
            </button>
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
      {palette && <Palette places={places} find={find} onClose={() => setPalette(false)} />}
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

function Side({ service, guide, groups, onFollow }: SideProps & { onFollow: () => void }) {
  return (
    <div className="side">
      <div className="brand">
        <Link href="/" className="brand-link" aria-label="Mainstay" onClick={onFollow}>
          <Logo />
        </Link>
        <span className="brand-name">
          Mainstay <Switcher title={service} />
        </span>
      </div>
      <nav className="nav" aria-label="Main">
        {groups.map((g) => (
          <Group key={g.label} group={g} onFollow={onFollow} />
        ))}
      </nav>
      <Foot guide={guide} />
    </div>
  );
}

/** Who is signed in, the theme, and where to read on. */
function Foot({ guide }: { guide: string }) {
  const session = useOwnSession();
  const { info } = useSession(session);
  const signOut = () => void session.signOut().catch((e: unknown) => toast(`You are still signed in: ${reason(e)}`, 'bad'));
  return (
    <div className="side-foot stack-tight">
      {info?.who && (
        <div>
          <div className="who">{info.who.name}</div>
          <div className="muted small">{info.who.note}</div>
        </div>
      )}
      <div className="row spread">
        <ThemeChoice />
        {info?.sign_out && (
          <button type="button" className="btn btn-small" onClick={signOut}>
            Sign out
          </button>
        )}
      </div>
      <div className="row spread small">
        <a href={`${guides}${guide}.md`} target="_blank" rel="noreferrer">
          Guide
        </a>
        <a href="/docs/">API reference</a>
        {info && <span className="muted">{info.version}</span>}
      </div>
      <div className="muted small">Times: {timeZone()}</div>
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
