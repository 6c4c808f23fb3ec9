/** Notices that operators must see on every page. */
import { Notice } from '../ui/notice';
import { Silent } from '../ui/silent';
import { DateTime } from '../ui/time';
import { useLive } from './live';

export function Banners() {
  const { reading, state } = useLive();
  if (!reading) return null;
  const { config, notReady, insecure } = reading.node;
  const silent = state === 'reconnecting';
  if (!config.error && !notReady && !insecure && !silent) return null;
  return (
    <div className="stack-tight banners">
      {silent && <Silent who="This node" at={reading.at * 1000} />}
      {insecure && (
        <Notice tone="bad">
          <strong>Everybody who reaches this node may change it.</strong> It listens beyond this machine and has neither keys nor client certificates. Set <code>LB_API_KEY</code> and restart it.
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
