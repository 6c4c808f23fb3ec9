/** Copying to the clipboard, and the box for secrets that are shown only once. */
import { useEffect, useState, type ReactNode } from 'react';
import { Icon } from './icon';
import { toast } from './toast';

/** Copies text. Reports success by its icon and to screen readers. */
export function CopyButton({ text, label = 'Copy', withText = false }: { text: string; label?: string; withText?: boolean }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 2_000);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
    } catch {
      // Browsers do not allow it on pages that are not served securely.
      toast('The browser does not allow copying here. Select the text and copy it by hand.', 'warn');
    }
  };
  return (
    <button type="button" className={`btn btn-quiet btn-small ${withText ? '' : 'btn-icon'}`} aria-label={label} title={label} onClick={() => void copy()}>
      <Icon name={copied ? 'check' : 'copy'} />
      {withText ? (copied ? 'Copied' : 'Copy') : null}
      <span className="visually-hidden" aria-live="polite">
        {copied && !withText ? 'Copied' : ''}
      </span>
    </button>
  );
}

/** A value with a button that copies it. */
export function Copyable({ text, children, label }: { text: string; children?: ReactNode; label?: string }) {
  return (
    <span className="copyable">
      <span>{children ?? <code>{text}</code>}</span>
      <CopyButton text={text} label={label ?? `Copy ${text}`} />
    </span>
  );
}

/** A box with text to copy: a command or a secret. */
export function CopyBox({ text, label }: { text: string; label: string }) {
  return (
    <div className="secret" role="group" aria-label={label}>
      <pre>{text}</pre>
      <CopyButton text={text} label={`Copy: ${label}`} withText />
    </div>
  );
}

/** A secret that the server shows only once. */
export function SecretOnce({ label, value }: { label: string; value: string }) {
  return (
    <div className="stack-tight">
      <span className="field-label">{label}</span>
      <CopyBox text={value} label={label} />
      <span className="field-hint">Copy it now: it is not shown again, and nobody can look it up.</span>
    </div>
  );
}
