/** The form for creating and changing a route. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useLocation } from 'wouter';
import { body } from '../../ui/client';
import { SecretOnce } from '../../ui/copy';
import { Dialog } from '../../ui/dialog';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import { toast } from '../../ui/toast';
import { api, schemas, type Route, type RouteInput, type RoutePatch } from '../api';
import { useSiteOptions } from '../site-choice';

export function RouteDialog({ route, onClose }: { route?: Route; onClose: () => void }) {
  const queries = useQueryClient();
  const [, navigate] = useLocation();
  const sites = useSiteOptions();
  const [made, setMade] = useState<Route>();
  const fields: FieldSpec[] = [
    { name: 'name', label: 'Name' },
    { name: 'topic', label: 'Topic', hint: 'A * matches any run of characters.', placeholder: 'temp.*' },
    { name: 'target_url', label: 'Target', hint: 'Where events are sent, over http or https.', placeholder: 'https://example.com/hook', wide: true },
    { name: 'site_id', label: 'Site', options: [{ value: '', label: 'All sites' }, ...sites], hint: 'Only events of this site.', keepEmpty: true },
    { name: 'enabled', label: 'Enabled', hint: route ? 'Disabling turns deliveries that wait into dead letters.' : 'Deliveries begin at once.' },
    { name: 'method', label: 'Method', advanced: true },
    { name: 'retry_max', label: 'Retries', hint: 'After the first attempt.', advanced: true },
    { name: 'timeout_seconds', label: 'Time limit in seconds', hint: 'For one attempt.', advanced: true },
    { name: 'secret', label: 'Signing secret', kind: 'password', hint: route ? 'Fill in to replace it.' : 'A Standard Webhooks secret (whsec_…); made when empty.', advanced: true },
  ];
  const refresh = () => queries.invalidateQueries({ queryKey: ['routes'] });
  if (made) {
    return (
      <Dialog
        title={`Route ${made.name} is made`}
        onClose={() => {
          onClose();
          navigate(`/routes/${made.id}`);
        }}
        wide
        once
      >
        <div className="dialog-body stack">
          <SecretOnce label="Signing secret" value={made.secret ?? ''} />
          <p className="muted small">The target checks with it that requests come from here (Standard Webhooks). A new one can be set when this one is lost.</p>
        </div>
        <div className="dialog-foot">
          <button
            type="button"
            className="btn btn-primary"
            onClick={() => {
              onClose();
              navigate(`/routes/${made.id}`);
            }}
          >
            I have copied it
          </button>
        </div>
      </Dialog>
    );
  }
  const common = { fields, two: true, wide: true, onClose } as const;
  if (route) {
    return (
      <FormDialog<RoutePatch>
        {...common}
        title={`Edit ${route.name}`}
        schema={schemas.PatchRoute}
        values={route}
        action="Save"
        onSubmit={async (input) => {
          await api.PATCH('/routes/{id}', { params: { path: { id: route.id } }, body: input });
          await refresh();
          toast(`${input.name ?? route.name} is saved.`);
          onClose();
        }}
      />
    );
  }
  return (
    <FormDialog<RouteInput>
      {...common}
      title="Create a route"
      schema={schemas.CreateRoute}
      values={{ method: 'POST' }}
      action="Create the route"
      onSubmit={async (input) => {
        setMade(await body(api.POST('/routes', { body: input })));
        await refresh();
      }}
    />
  );
}
