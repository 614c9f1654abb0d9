// A middleware of lockRequest() does not change the types of other handlers: in Express 5, each
// handler of a route has the types that it has without the middleware.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import express, { type Request, type RequestHandler, type Response, Router } from 'express'
import { createLockClient, type Lease } from 'leasehold'
import { lockRequest } from 'leasehold/express'
import { same } from './equal'

const locks = createLockClient('memory:types')
const app = express()

/** The type that the route gives a request, without any middleware. */
type Order = Request<{ id: string }>
const theOrder: RequestHandler<{ id: string }> = (request) => {
  same<typeof request, Order>()
  same<typeof request.params.id, string>()
}
app.post('/orders/:id/pay', (request, response) => {
  same<typeof request, Order>()
  same<typeof response, Response>()
})

// With an annotated key function, the types are those of the route, and not of the annotation.
const annotated = lockRequest(locks, { key: (request: Request) => `order:${request.params.id}`, wait: 500 })
app.post('/orders/:id/pay', annotated, (request, response) => {
  same<typeof request, Order>()
  same<typeof request.params.id, string>()
  same<typeof request.lease, Lease | undefined>()
  same<typeof response, Response>()
  // @ts-expect-error: the route has no such parameter
  request.params.order
})
app.post('/orders/:id/pay', annotated, theOrder)
app.post(
  '/orders/:id/pay',
  lockRequest(locks, { key: ({ params }: Order) => `order:${params.id}` }),
  (request, response) => {
    same<typeof request, Order>()
    same<typeof response, Response>()
  },
)
type Paid = Request<{ id: string }, { paid: boolean }, { amount: number }, { dry?: string }, { user: string }>
app.post('/orders/:id/pay', lockRequest(locks, { key: ({ params }: Paid) => params.id }), (request, response) => {
  same<typeof request, Order>()
  same<typeof response, Response>()
})

// A key function without an annotation has the request of Express in a route of Express.
app.post(
  '/orders/:id/pay',
  lockRequest(locks, {
    key: (request) => {
      same<typeof request, Request>()
      return `order:${request.params.id}`
    },
  }),
  (request, response) => {
    same<typeof request, Order>()
    same<typeof request.params.id, string>()
    same<typeof response, Response>()
  },
)
app.post('/orders/:id/pay', lockRequest(locks, { key: () => 'all' }), (request) => {
  same<typeof request, Order>()
})
app.post('/orders/:id/pay', lockRequest(locks, { key: async ({ ip }) => ip ?? 'unknown' }), theOrder)
// A handler that is passed to lockRequest has the types of Express, too, and so has `onBusy`.
app.put(
  '/orders/:id',
  lockRequest(
    locks,
    {
      key: (request) => request.path,
      onBusy: ({ retryAfter }, request, response) => response.status(423).json({ retryAfter, path: request.path }),
    },
    (request, response) => {
      same<typeof request, Request & { lease: Lease }>()
      same<typeof response, Response>()
      response.json({ fence: request.lease.fence })
    },
  ),
)

// The types of the bodies stay those of the route.
app.post<{ id: string }, string, { amount: number }>('/orders/:id', annotated, (request, response) => {
  same<typeof request, Request<{ id: string }, string, { amount: number }>>()
  same<typeof response, Response<string>>()
})
app.post('/orders/:id', express.json(), annotated, (request: Request<{ id: string }, string, { amount: number }>) => {
  same<typeof request.body.amount, number>()
})

// The middleware may be in any place.
app.use(annotated, (request) => {
  same<typeof request, Request>()
})
app.use('/orders/:id', annotated, (request) => {
  same<typeof request, Order>()
})
app.use(lockRequest(locks, { key: (request) => request.path }))
app
  .route('/orders/:id')
  .all(annotated)
  .post(annotated, (request) => {
    same<typeof request, Order>()
  })
const router = Router()
router.post('/orders/:id', lockRequest(locks, { key: ({ params }) => `order:${params.id}` }), theOrder)
router.use('/orders/:id', annotated, theOrder, annotated)
app.use('/shop', annotated, router)
app.all(/^\/orders\/(.*)/, annotated, (request) => {
  same<(typeof request.params)[0], string>()
})
// Express infers no types for the handlers behind an array, so they are annotated.
const several = [annotated, lockRequest(locks, { key: () => 'all' }), express.json()]
app.post('/orders/:id', several, (request: Order, response: Response) => response.send(request.params.id))
app.post('/orders/:id', [annotated, theOrder], (request: Order, response: Response) => response.send(request.params.id))
app.post('/orders/:id', ...several, (request) => {
  same<typeof request, Order>()
})

// A middleware that needs more than a route has is refused, and one for Express is not one for
// node:http.
interface User extends Request {
  user: { id: string }
}
// @ts-expect-error: a request of Express has no user
app.post('/orders/:id', lockRequest(locks, { key: (request: User) => request.user.id }), theOrder)
// @ts-expect-error: a request of node:http has no path
createServer(annotated)
createServer(lockRequest(locks, { key: (request: IncomingMessage) => request.url }))
const both = lockRequest(locks, { key: (request) => request.url })
app.post('/orders/:id', both, theOrder)
createServer((request: IncomingMessage, response: ServerResponse) => both(request, response))
