/** The actions on a device: update, forget. */
import { useQueryClient } from '@tanstack/react-query';
import { useState, type ReactNode } from 'react';
import type { BulkAction } from '../../ui/bulk';
import { useConfirm } from '../../ui/confirm';
import type { FieldSpec } from '../../ui/draft';
import { FormDialog } from '../../ui/form';
import type { MenuAction } from '../../ui/menu';
import { toast } from '../../ui/toast';
import { api, schemas, useMay, type Device, type OTAInput } from '../api';

export const artifactFields: FieldSpec[] = [
  { name: 'version', label: 'Version', placeholder: '2.1.0' },
  { name: 'url', label: 'Address of the artifact', hint: 'Where the device fetches it, over http or https.', placeholder: 'https://firmware.example.com/2.1.0.bin', wide: true },
  { name: 'sha256', label: 'SHA-256 of the artifact', hint: 'The device checks what it fetched against it.', wide: true },
  { name: 'size', label: 'Size in bytes' },
];

const otaFields: FieldSpec[] = [...artifactFields, { name: 'force', label: 'Install even when the device has this version' }];

export function useDeviceActions(onDeleted: () => void = () => undefined): { actions: (device: Device) => MenuAction[]; bulk: BulkAction<Device>[]; dialog: ReactNode } {
  const may = useMay();
  const confirm = useConfirm();
  const queries = useQueryClient();
  const [updating, setUpdating] = useState<Device>();
  const path = (device: Device) => ({ params: { path: { id: device.device_id } } });

  const remove = (device: Device) =>
    confirm({
      title: `Delete ${device.device_id}?`,
      body: (
        <p>
          <b>{device.device_id}</b> and its twin are removed: its desired and reported state are lost. Its agent may register it again, as a new device.
        </p>
      ),
      action: 'Delete the device',
      danger: true,
      run: async () => {
        await api.DELETE('/devices/{id}', path(device));
        onDeleted();
        await queries.invalidateQueries({ queryKey: ['devices'] });
      },
      done: `${device.device_id} is deleted.`,
    });
  const actions = (device: Device): MenuAction[] => [
    ...(may('RequestOTA') ? [{ label: 'Request an update', run: () => setUpdating(device) }] : []),
    ...(may('DeleteDevice') ? [{ label: 'Delete', danger: true, run: () => remove(device) }] : []),
  ];
  const dialog = updating && (
    <FormDialog<OTAInput>
      title={`Update ${updating.device_id}`}
      schema={schemas.RequestOTA}
      fields={otaFields}
      action="Request the update"
      onClose={() => setUpdating(undefined)}
      onSubmit={async (input) => {
        await api.POST('/devices/{id}/ota', { ...path(updating), body: input });
        await queries.invalidateQueries({ queryKey: ['devices'] });
        toast(`${updating.device_id} is asked to update to ${input.version}.`);
        setUpdating(undefined);
      }}
    >
      <p className="muted small">
        The device {updating.firmware_version ? `has ${updating.firmware_version} now` : 'has not said which version it has'}. An earlier request that is under way is replaced.
      </p>
    </FormDialog>
  );
  const bulk: BulkAction<Device>[] = may('DeleteDevice')
    ? [
        {
          label: 'Delete',
          body: 'They and their twins are removed: their desired and reported states are lost. Their agents may register them again, as new devices.',
          danger: true,
          run: (device) => api.DELETE('/devices/{id}', path(device)),
          after: () => queries.invalidateQueries({ queryKey: ['devices'] }),
        },
      ]
    : [];
  return { actions, bulk, dialog };
}
