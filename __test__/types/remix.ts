// leasehold/remix around handlers in the forms of several frameworks.

import { createLockClient, type Lease, type MultiLease, type Seconds } from 'leasehold'
import { type Refusal, withRequestLock } from 'leasehold/remix'
import type * as lib from '../../lib/integrations/remix'
import { same } from './equal'

const locks = createLockClient('memory:types')

/** The argument of handlers in Remix and React Router. */
interface ActionFunctionArgs {
  request: Request
  params: Record<string, string | undefined>
  context: { user: string }
}
type ActionFunction = (args: ActionFunctionArgs) => Promise<unknown> | unknown

export const action: ActionFunction = withRequestLock(
  locks,
  { key: ({ params }: ActionFunctionArgs) => `order:${params.id}`, wait: 500 },
  async (lease, { context }) => {
    same<typeof lease, Lease>()
    return { user: context.user, fence: lease.fence }
  },
)

export const loader = withRequestLock(
  locks,
  { key: async (_: ActionFunctionArgs) => ['a', 'b'], maxKeys: 2, until: 'body' },
  (leases) => {
    same<typeof leases, MultiLease>()
    return new Response(null, { status: 204 })
  },
)
loader satisfies (args: ActionFunctionArgs) => Promise<Response>

// A handler that gets a request and an argument of the framework, as in Hono, Next, Deno and Bun.
export const POST = withRequestLock(
  locks,
  { key: (request: Request, _next: { params: { id: string } }) => (request.method === 'GET' ? undefined : 'all') },
  (lease, request, { params }) => {
    same<typeof lease, Lease | undefined>()
    return Response.json({ id: params.id, url: request.url, fence: lease?.fence })
  },
)
POST satisfies (request: Request, next: { params: { id: string } }) => Promise<Response>
same<Parameters<typeof POST>, [request: Request, next: { params: { id: string } }]>()

// The result of `onBusy` is a result of the handler.
export const own = withRequestLock(
  locks,
  {
    key: (_: Request) => 'key',
    onBusy: (refusal) => {
      same<typeof refusal, Refusal>()
      return { seconds: refusal.retryAfter }
    },
  },
  () => 5,
)
same<ReturnType<typeof own>, Promise<number | Response | { seconds: Seconds }>>()

// @ts-expect-error: no request
withRequestLock(locks, { key: (_: string) => 'key' }, () => 5)
// @ts-expect-error: no such time
withRequestLock(locks, { key: (_: Request) => 'key', until: 'later' }, () => 5)
// @ts-expect-error: no handler
withRequestLock(locks, { key: (_: Request) => 'key' })

// The implementation exports the declared names.
same<keyof typeof import('leasehold/remix'), keyof typeof lib>()
