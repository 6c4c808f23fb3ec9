/** A device and its twin: desired state, reported state, and update. */
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useLocation } from 'wouter';
import { body } from '../../ui/client';
import { ApiError } from '../../ui/problem';
import { Copyable } from '../../ui/copy';
import { Card, Facts, Tags } from '../../ui/facts';
import { Icon } from '../../ui/icon';
import { JsonDiff } from '../../ui/json-diff';
import { JsonView } from '../../ui/json-view';
import { Menu } from '../../ui/menu';
import { Empty, Failure } from '../../ui/notice';
import { count } from '../../ui/number';
import { Page } from '../../ui/page';
import { Bar } from '../../ui/progress';
import { Tabs } from '../../ui/tabs';
import { DateTime, Time } from '../../ui/time';
import { Allowed, api, type Device, type OTA, type Twin } from '../api';
import { SiteLink } from '../links';
import { failedEnds } from '../notes';
import { OTAState } from '../states';
import { useDeviceActions } from './actions';
import { DesiredDialog, withoutOTA } from './desired';
import { Trouble } from '../trouble';

const above = [{ title: 'Devices', href: '/devices' }];

/** The device's update, or null if none was ever requested, which the API answers with 404. */
async function currentUpdate(id: string, signal: AbortSignal): Promise<OTA | null> {
  try {
    return await body(api.GET('/devices/{id}/ota', { params: { path: { id } }, signal }));
  } catch (e) {
    if (e instanceof ApiError && e.code === 'no_update') return null;
    throw e;
  }
}

export function DeviceDetail({ id }: { id: string }) {
  const [, navigate] = useLocation();
  const { actions, dialog } = useDeviceActions(() => navigate('/devices'));
  const path = { params: { path: { id } } };
  const device = useQuery({ queryKey: ['devices', 'one', id], queryFn: ({ signal }) => body(api.GET('/devices/{id}', { ...path, signal })), refetchInterval: 5_000 });
  const twin = useQuery({ queryKey: ['devices', 'twin', id], queryFn: ({ signal }) => body(api.GET('/twins/{id}', { ...path, signal })), refetchInterval: 5_000 });
  const ota = useQuery({ queryKey: ['devices', 'ota', id], queryFn: ({ signal }) => currentUpdate(id, signal), refetchInterval: 5_000 });
  const failed = device.error ?? twin.error;
  if (!device.data || !twin.data) {
    return (
      <Page title="Device" above={above}>
        {failed ? <Failure error={failed} retry={() => void Promise.all([device.refetch(), twin.refetch()])} /> : <p className="muted">Loading…</p>}
      </Page>
    );
  }
  const d = device.data;
  const t = twin.data;
  return (
    <Page
      title={d.device_id}
      above={above}
      lead={d.name || undefined}
      badge={ota.data ? <OTAState state={ota.data.status.state} /> : undefined}
      actions={<Menu label={`Actions for ${d.device_id}`} className="" button={<>Actions <Icon name="chevron" /></>} actions={actions(d)} />}
    >
      <div className="stack">
        <Trouble of={{ subject: id }} />
        <Card title="Device">
          <Facts
            facts={[
              ['Site', <SiteLink key="s" id={d.site_id} />],
              ['Model', d.model || <span className="muted">unknown</span>],
              ['Firmware', d.firmware_version || <span className="muted">unknown</span>],
              ['Labels', <Tags key="t" labels={d.labels} />],
              ['Last seen', <Time key="t" at={d.last_seen_at} />],
              ['Registered', <DateTime key="t" at={d.registered_at} />],
              ['ID', <Copyable key="c" text={d.device_id} />],
            ]}
          />
        </Card>
        <Tabs
          label="Twin"
          inAddress
          tabs={[
            { id: 'desired', label: 'Desired', content: () => <Desired twin={t} /> },
            { id: 'reported', label: 'Reported', content: () => <Reported twin={t} /> },
            { id: 'diff', label: 'Difference', content: () => <Difference twin={t} /> },
            { id: 'ota', label: 'Update', content: () => <Update device={d} ota={ota.data} error={ota.error} /> },
          ]}
        />
      </div>
      {dialog}
    </Page>
  );
}

function Desired({ twin }: { twin: Twin }) {
  const [editing, setEditing] = useState(false);
  return (
    <Card
      title={`Desired, version ${count(twin.desired_version)}`}
      actions={
        <Allowed operation="PutDesired">
          <button type="button" className="btn" onClick={() => setEditing(true)}>
            Edit
          </button>
        </Allowed>
      }
    >
      <JsonView label="Desired state" value={twin.desired} />
      {editing && <DesiredDialog twin={twin} onClose={() => setEditing(false)} />}
    </Card>
  );
}

function Reported({ twin }: { twin: Twin }) {
  return (
    <Card title={`Reported, version ${count(twin.reported_version)}`}>
      {twin.reported_version === 0 ? (
        <Empty icon="device" title="Nothing reported yet">
          The device’s agent reports what the device is.
        </Empty>
      ) : (
        <JsonView label="Reported state" value={twin.reported} />
      )}
    </Card>
  );
}

function Difference({ twin }: { twin: Twin }) {
  return (
    <Card title="What differs">
      <JsonDiff before={withoutOTA(twin.desired)} after={withoutOTA(twin.reported)} beforeLabel="Desired" afterLabel="Reported" same="The device reports what it should be." />
    </Card>
  );
}

function Update({ device, ota, error }: { device: Device; ota: OTA | null | undefined; error: unknown }) {
  if (error) return <Failure error={error} />;
  if (!ota) {
    return (
      <Card title="Update">
        <Empty icon="refresh" title="No update was requested">
          Request one from the actions above, or for many devices with a campaign.
        </Empty>
      </Card>
    );
  }
  const { request, status } = ota;
  return (
    <Card title={`Update to ${request.version}`}>
      <div className="stack">
        <div className="stack-tight">
          <div className="row spread">
            <OTAState state={status.state} />
            <span className="muted">{status.progress} %</span>
          </div>
          <Bar total={100} parts={[{ label: 'percent done', value: status.progress, tone: failedEnds.includes(status.state) ? 'bad' : 'info' }]} />
          {status.message && <p>{status.message}</p>}
        </div>
        <Facts
          facts={[
            ['Firmware now', device.firmware_version || <span className="muted">unknown</span>],
            ['Requested', <DateTime key="r" at={request.requested_at} />],
            ['Last news', <Time key="u" at={status.updated_at} />],
            ['Artifact', <Copyable key="a" text={request.url} />],
            ['SHA-256', <Copyable key="h" text={request.sha256} />],
            request.size !== undefined && ['Size', `${count(request.size)} bytes`],
            request.force === true && ['Force', 'installs even when the device has this version'],
            request.campaign_id !== undefined && request.campaign_id !== '' && ['Campaign', <Link key="c" href={`/campaigns/${request.campaign_id}`}>Open the campaign</Link>],
          ]}
        />
      </div>
    </Card>
  );
}
