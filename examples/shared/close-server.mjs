// The first step of a shutdown.

/** Stops taking requests. Resolves when the server has answered the requests in flight. */
export async function closeServer(server) {
  // Each open connection closes after its next request.
  server.prependListener('request', (_request, response) => response.setHeader('connection', 'close'))
  await new Promise((closed) => server.close(closed))
}
