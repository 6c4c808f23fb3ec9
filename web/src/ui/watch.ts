/** A job as its stream tells of it. */
import { useState } from 'react';
import { useOwnSession, useSession } from './session';
import { useStream } from './stream';

/**
 * The job that the stream at `url` sends each time it changes. Undefined until the service has told of
 * it. The stream ends with the job: `onEnd` is called then, and nothing reconnects.
 */
export function useWatched<T extends { id: string }>(url: string, id: string, underWay: (job: T) => boolean, onEnd?: (job: T) => void): T | undefined {
  const session = useOwnSession();
  const { epoch } = useSession(session);
  const [job, setJob] = useState<T>();
  const own = job?.id === id ? job : undefined;
  useStream({
    url,
    epoch,
    enabled: own === undefined || underWay(own),
    onMessage: (message) => {
      const told = JSON.parse(message.data) as T;
      setJob(told);
      if (!underWay(told)) onEnd?.(told);
    },
    onUnauthorized: session.expire,
  });
  return own;
}
