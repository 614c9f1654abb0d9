import type { Socket } from 'node:net'

/**
 * Maps each connection to the callbacks for its close. A client may pipeline any number of
 * requests. With one listener for each request, Node would warn of a leak.
 */
const callbacks = new WeakMap<Socket, Set<() => void>>()

/** Calls `callback` when the connection of a request closes. Returns a function that removes it. */
export function onConnectionClose(socket: Socket, callback: () => void): () => void {
  const all = callbacks.get(socket) ?? listen(socket)
  all.add(callback)
  return () => all.delete(callback)
}

function listen(socket: Socket): Set<() => void> {
  const all = new Set<() => void>()
  callbacks.set(socket, all)
  socket.once('close', () => {
    for (const callback of all) callback()
  })
  return all
}
