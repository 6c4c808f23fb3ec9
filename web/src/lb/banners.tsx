/** What an operator must know on whatever page they are. */
import { Notice } from '../ui/notice';
import { Clock, DateTime } from '../ui/time';
import { useLive } from './live';

export function Banners() {
  const { reading, state } = useLive();
  if (!reading) return null;
  const { config, notReady } = reading.node;
  const silent = state === 'reconnecting';
  if (!config.error && !notReady && !silent) return null;
  return (
    <div className="stack-tight banners">
      {silent && (
        <Notice tone="warn">
          <strong>This node does not answer.</strong> What is shown was so at <Clock at={new Date(reading.at * 1000).toISOString()} />.
        </Notice>
      )}
      {notReady && (
        <Notice tone="bad">
          <strong>This node is not ready.</strong> {notReady}
        </Notice>
      )}
      {config.error && (
        <Notice tone="bad">
          <strong>
            The configuration file was refused
            {config.errorAt && (
              <>
                {' '}
                at <DateTime at={config.errorAt} />
              </>
            )}
            .
          </strong>{' '}
          What was loaded at <DateTime at={config.loadedAt} /> stays in force.
          <pre>{config.error}</pre>
        </Notice>
      )}
    </div>
  );
}
