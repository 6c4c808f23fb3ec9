/** Where forms show a refusal whose field depends on the form. */
import { ApiError } from '../ui/problem';

/** Shows at the field for a size that the tenant's quota leaves less room. */
export const bytesAt = (field: string) => (error: unknown) => (error instanceof ApiError && error.limit === 'bytes' ? field : undefined);
