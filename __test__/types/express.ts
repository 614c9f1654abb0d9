// leasehold/express with the types of Express, of node:http, and by itself.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import express, { type Request, type Response } from 'express'
import { createLockClient, type Lease, type LockError, type MultiLease } from 'leasehold'
import { type LockedRequest, lockRequest, type Refusal } from 'leasehold/express'
import type * as lib from '../../lib/integrations/express'
import { same } from './equal'

const locks = createLockClient('memory:types')
const app = express()

// As a middleware, the request is that of Express, also without an annotation if only the path is
// given.
app.post(
  '/orders/:id/pay',
  lockRequest(locks, { key: (request: Request) => `order:${request.params.id}`, wait: 500, maxHold: 60_000 }),
  (request, response) => {
    same<typeof request.lease, Lease | undefined>()
    same<typeof request.leases, MultiLease | undefined>()
    response.json({ fence: request.lease?.fence })
  },
)
app.use(lockRequest(locks, { key: () => undefined }))
app.use(lockRequest<Request, Response>(locks, { key: async (request) => ['a', request.ip ?? 'unknown'], maxKeys: 2 }))

// Around a handler, with own responses.
app.put(
  '/orders/:id',
  lockRequest(
    locks,
    {
      key: (request: Request) => request.path,
      onBusy(refusal, request, response, next) {
        same<typeof refusal, Refusal>()
        same<typeof refusal.status, 423 | 503>()
        same<typeof refusal.error, LockError>()
        response.render('busy', { seconds: refusal.retryAfter, path: request.path })
        next(refusal.error)
      },
      onUnavailable: (_refusal, _request, _response, next) => next(new Error('down')),
    },
    async (request, response) => {
      same<typeof request.lease, Lease>()
      response.send(String(request.lease.fence))
    },
  ),
)
app.put(
  '/transfers',
  lockRequest(locks, { key: async (request: Request) => [request.path, 'all'], maxKeys: 2 }, (request, response) => {
    same<typeof request.leases, MultiLease>()
    same<typeof response, Response>()
    response.json(request.leases.fences)
  }),
)

// Outside a route, the response has the type of the request, with the type of its body.
export const pay = lockRequest(
  locks,
  {
    key: (request: Request<{ id: string }, { fence: number }>) => request.params.id,
    onUnavailable: (refusal, _request, response) => response.status(refusal.status).end(),
  },
  async (request, response) => {
    response.json({ fence: request.lease.fence })
    // @ts-expect-error: no such body
    response.json({ fences: {} })
  },
)
app.post('/orders/:id', pay)
// An annotation of the response decides its type.
lockRequest(locks, { key: (request: Request) => request.path }, (_request, response: ServerResponse) => {
  same<typeof response, ServerResponse>()
})

// Without Express.
createServer(
  lockRequest(locks, { key: (request) => request.url }, (request, response) => {
    same<typeof request, IncomingMessage & LockedRequest>()
    same<typeof response, ServerResponse>()
    response.end(String(request.lease?.fence))
  }),
)
const middleware = lockRequest(locks, { key: () => 'all' })
createServer((request, response) => middleware(request, response, (error) => response.end(String(error ?? 'mine'))))

// @ts-expect-error: no key
lockRequest(locks, {})
// @ts-expect-error: no client
lockRequest('redis://localhost', { key: () => 'key' })
// @ts-expect-error: no such option
lockRequest(locks, { key: () => 'key', timeout: 5 })
// @ts-expect-error: a key is text
lockRequest(locks, { key: () => 5 })

// The implementation exports the declared names.
same<keyof typeof import('leasehold/express'), keyof typeof lib>()
