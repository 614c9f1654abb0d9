// The first step of a shutdown.

/**
 * Returns the set of the open sockets of `server`. Call it directly before or after
 * `server.listen()`, without an `await` between the two: otherwise the set lacks the connections
 * that the server has accepted by then. The set also contains sockets whose TLS handshake has not
 * ended. `server.closeAllConnections()` leaves these open.
 */
export function collectSockets(server) {
  const sockets = new Set()
  server.on('connection', (socket) => sockets.add(socket.once('close', () => sockets.delete(socket))))
  return sockets
}

/**
 * Stops taking requests. Resolves when the server has answered the requests in flight and all
 * connections are closed. After `limit` ms, it destroys the `sockets` that are still open. If
 * `limit` is shorter than two of the longest requests and `keepAliveTimeout`, it may cut off a
 * request. If it is longer, a client that sends nothing delays the shutdown for longer.
 */
export async function closeServer(server, sockets, limit = 10_000) {
  // Each open connection closes after its next request.
  server.prependListener('request', (_request, response) => response.setHeader('connection', 'close'))
  // Otherwise close() resets idle connections, even if a request has just arrived on one of them.
  server.closeIdleConnections = () => {}
  // A client may connect and send nothing.
  setTimeout(() => {
    for (const socket of sockets) socket.destroy()
  }, limit).unref()
  await new Promise((closed) => server.close(closed))
}
