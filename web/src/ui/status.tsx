/** A state as a word with an icon and a colour, so that it is never conveyed by colour alone. */
import { Icon, type IconName } from './icon';

export type Tone = 'ok' | 'warn' | 'bad' | 'info' | 'idle';

const signs: Record<Tone, IconName> = { ok: 'check', warn: 'alert', bad: 'close', info: 'spin', idle: 'dot' };

export function Status({ tone, children, icon }: { tone: Tone; children: string; icon?: IconName }) {
  return (
    <span className={`badge tone-${tone}`}>
      <Icon name={icon ?? signs[tone]} />
      {children}
    </span>
  );
}

/** Converts a word of the API to text: `in_progress` becomes "in progress". */
export function words(word: string): string {
  return word.replaceAll('_', ' ');
}
