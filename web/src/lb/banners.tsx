/** What an operator must know on whatever page they are. */
import { Notice } from '../ui/notice';
import { DateTime } from '../ui/time';
import { useLive } from './live';

export function Banners() {
  const { reading } = useLive();
  if (!reading) return null;
  const { config, notReady } = reading.node;
  if (!config.error && !notReady) return null;
  return (
    <div className="stack-tight banners">
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
