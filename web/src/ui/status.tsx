/** A state in one word with a sign and a colour, so that it is never told by colour alone. */
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

/** Makes words of an API's word: `in_progress` becomes "in progress". */
export function words(word: string): string {
  return word.replaceAll('_', ' ');
}
