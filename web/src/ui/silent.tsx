/** Says that the service does not answer, and when what is shown was so. */
import type { ReactNode } from 'react';
import { Notice } from './notice';
import { Clock } from './time';

export function Silent({ who, at, children }: { /** As in "The daemon". */ who: string; /** When what is shown was read (milliseconds since 1970). */ at: number; children?: ReactNode }) {
  return (
    <Notice tone="warn">
      <strong>{who} does not answer.</strong> What is shown was so at <Clock at={new Date(at).toISOString()} />. {children}
    </Notice>
  );
}
