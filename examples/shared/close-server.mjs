// The first step of a shutdown.

/** Takes no new requests, and resolves when those in flight are answered. */
export async function closeServer(server) {
  // A request that still comes in over an open connection is the last one there.
  server.prependListener('request', (_request, response) => response.setHeader('connection', 'close'))
  await new Promise((closed) => server.close(closed))
}
