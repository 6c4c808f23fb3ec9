/**
 * The client of the edge control plane's API: types, access rules, and queries that several pages
 * share.
 */
import { useQuery } from '@tanstack/react-query';
import access from '../api/edge.access.gen.json';
import bodies from '../api/edge.bodies.gen.json';
import type { components, paths } from '../api/edge.gen';
import { createAccess } from '../ui/access';
import { body, createClient } from '../ui/client';
import type { Schema } from '../ui/schema';
import { createSession } from '../ui/session';

type Schemas = components['schemas'];
export type ActivityEntry = Schemas['ActivityEntry'];
export type Alert = Schemas['Alert'];
export type AuditEntry = Schemas['AuditEntry'];
export type Campaign = Schemas['Campaign'];
export type CampaignDevice = Schemas['CampaignDevice'];
export type CampaignInput = Schemas['CampaignInput'];
export type DeadLetter = Schemas['DeadLetter'];
export type Deployment = Schemas['Deployment'];
export type DeploymentInput = Schemas['DeploymentInput'];
export type DeploymentPatch = Schemas['DeploymentPatch'];
export type Device = Schemas['Device'];
export type EdgeEvent = Schemas['Event'];
export type EnrollmentToken = Schemas['EnrollmentToken'];
export type EnrollmentTokenInput = Schemas['EnrollmentTokenInput'];
export type ImageCheck = Schemas['ImageCheck'];
export type ImageVerdict = Schemas['ImageVerdict'];
export type NewEnrollmentToken = Schemas['NewEnrollmentToken'];
export type NewOrg = Schemas['NewOrg'];
export type Org = Schemas['Org'];
export type OTA = Schemas['OTA'];
export type OTAInput = Schemas['OTAInput'];
export type HistoryPoint = Schemas['HistoryPoint'];
export type Overview = Schemas['Overview'];
export type PolicyPack = Schemas['PolicyPack'];
export type PolicyPackInput = Schemas['PolicyPackInput'];
export type Route = Schemas['Route'];
export type RouteInput = Schemas['RouteInput'];
export type RoutePatch = Schemas['RoutePatch'];
export type RouteTestResult = Schemas['RouteTestResult'];
export type Site = Schemas['Site'];
export type SitePatch = Schemas['SitePatch'];
export type Twin = Schemas['Twin'];

export const session = createSession('edge');
export const api = createClient<paths>(session);

/** The schemas of request bodies, by operation. */
export const schemas = bodies as unknown as Record<keyof typeof bodies, Schema>;

export type Operation = keyof typeof access;
export const { useMay, Allowed } = createAccess<Operation>(access);

/** The maximum size of a page of a list. Site choices offer this many sites. */
export const pageLimit = 1000;

/** The sites, and their names by ID, since lists contain only IDs of sites. */
export function useSites(): { sites: readonly Site[]; name: (id: string) => string } {
  const { data = [] } = useQuery({
    queryKey: ['sites', 'names'],
    queryFn: ({ signal }) => body(api.GET('/sites', { params: { query: { limit: pageLimit } }, signal })),
    staleTime: 30_000,
    refetchInterval: 30_000,
  });
  return { sites: data, name: (id) => data.find((s) => s.id === id)?.name ?? shortId(id) };
}

/** The end of an ID. IDs start with their time of creation, so their beginnings look alike. */
export function shortId(id: string): string {
  return id.length > 14 ? `…${id.slice(-8)}` : id;
}
