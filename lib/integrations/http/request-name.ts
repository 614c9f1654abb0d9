// Names a request in a warning, by its method and route. A visitor chooses the URL, so the name has
// neither its path nor its query.

import { METHODS } from 'node:http'

/**
 * The length of the longest route that a name contains, in characters. If this is larger, a warning
 * is hard to read. If it is smaller, the names of more requests lack the route.
 */
const LONGEST_ROUTE = 200

/**
 * Returns `a POST request to /orders/:id`, without the method or the route if it is not known. The
 * route is the pattern that the application gave to Express.
 */
export function requestName(given: unknown): string {
  const { method, route } = Object(given) as { method?: unknown; route?: unknown }
  // A visitor may send any word as the method of a Request.
  const isMethod = typeof method === 'string' && METHODS.includes(method)
  const { path } = Object(route) as { path?: unknown }
  const isRoute = typeof path === 'string' && path.length <= LONGEST_ROUTE
  return `a ${isMethod ? `${method} ` : ''}request${isRoute ? ` to ${path}` : ''}`
}
