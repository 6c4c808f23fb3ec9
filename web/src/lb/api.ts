/** The client of the load balancer's API. */
import type { components, paths } from '../api/lb.gen';
import { createClient } from '../ui/client';
import { createSession } from '../ui/session';

type Schemas = components['schemas'];
export type Backend = Schemas['Backend'];
export type BGPSession = Schemas['BGPSession'];
export type History = Schemas['History'];
export type Node = Schemas['Node'];
export type VIP = Schemas['VIP'];

export const session = createSession('lb');
export const api = createClient<paths>(session);
