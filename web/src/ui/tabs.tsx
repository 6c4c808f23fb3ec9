/**
 * Tabs with the keyboard support of the ARIA pattern: arrows, Home and End move, with a single tab
 * stop.
 */
import { useId, useState, type KeyboardEvent, type ReactNode } from 'react';

export interface Tab {
  id: string;
  label: string;
  content: () => ReactNode;
}

/**
 * With `inAddress`, the open tab is stored in the address's fragment, so that it can be linked to.
 * Use it for the tabs of a page.
 */
export function Tabs({ label, tabs, inAddress = false }: { label: string; tabs: readonly Tab[]; inAddress?: boolean }) {
  const base = useId();
  const [selected, setSelected] = useState(() => (inAddress ? location.hash.slice(1) : ''));
  const open = tabs.find((t) => t.id === selected) ?? tabs[0];
  if (!open) return null;

  const select = (id: string) => {
    setSelected(id);
    if (inAddress) history.replaceState(history.state, '', `#${id}`);
  };
  const keys = (event: KeyboardEvent<HTMLDivElement>) => {
    const at = tabs.indexOf(open);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const tab = tabs[(next + tabs.length) % tabs.length];
    if (!tab) return;
    select(tab.id);
    event.currentTarget.querySelector<HTMLElement>(`[data-tab="${tab.id}"]`)?.focus();
  };
  return (
    <div>
      <div className="tabs" role="tablist" aria-label={label} tabIndex={-1} onKeyDown={keys}>
        {tabs.map((t) => (
          <button
            key={t.id}
            type="button"
            role="tab"
            data-tab={t.id}
            id={`${base}-${t.id}`}
            className="tab"
            aria-selected={t === open}
            aria-controls={t === open ? `${base}-panel` : undefined}
            tabIndex={t === open ? 0 : -1}
            onClick={() => select(t.id)}
          >
            {t.label}
          </button>
        ))}
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- the pattern has panels in the tab order */}
      <div className="tab-panel" role="tabpanel" id={`${base}-panel`} aria-labelledby={`${base}-${open.id}`} tabIndex={0}>
        {open.content()}
      </div>
    </div>
  );
}
