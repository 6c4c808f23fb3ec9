/** Reports that the service does not respond, and the time of the data that is shown. */
import type { ReactNode } from 'react';
import { Notice } from './notice';
import { Clock } from './time';

export function Silent({ who, at, children }: { /** As in "The daemon". */ who: string; /** When the data was read (milliseconds since 1970). */ at: number; children?: ReactNode }) {
  return (
    <Notice tone="warn">
      <strong>{who} does not answer.</strong> What is shown was so at <Clock at={new Date(at).toISOString()} />. {children}
    </Notice>
  );
}
