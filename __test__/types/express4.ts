// leasehold/express with the types of Express 4.

import express, { type Request, type Response, Router } from 'express4'
import { createLockClient, type Lease } from 'leasehold'
import { lockRequest } from 'leasehold/express'
import { same } from './equal'

const locks = createLockClient('memory:types')
const app = express()
type Order = Request<{ id: string }>

const annotated = lockRequest(locks, { key: (request: Request) => `order:${request.params.id}`, wait: 500 })
app.post('/orders/:id/pay', annotated, (request, response) => {
  same<typeof request, Order>()
  same<typeof request.params.id, string>()
  same<typeof request.lease, Lease | undefined>()
  same<typeof response, Response>()
  // @ts-expect-error: the route has no such parameter
  request.params.order
})
app.post('/orders/:id/pay', lockRequest(locks, { key: ({ params }) => `order:${params.id}` }), (request, response) => {
  same<typeof request, Order>()
  same<typeof response, Response>()
})
app.put(
  '/orders/:id',
  lockRequest(locks, { key: ({ params }: Order) => params.id }, (request, response) => {
    same<typeof request, Order & { lease: Lease }>()
    same<typeof response, Response>()
    response.json({ fence: request.lease.fence })
  }),
)
app.use(lockRequest(locks, { key: (request) => request.path }))
app.use('/orders/:id', annotated, (request) => {
  same<typeof request, Order>()
})
const router = Router()
router.post('/orders/:id', annotated, (request) => {
  same<typeof request, Order>()
})
app.use('/shop', [annotated, express.json()], router)
