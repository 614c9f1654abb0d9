// Names a request in a warning, by its method and route. A visitor chooses the URL, so the name has
// neither its path nor its query.

import { METHODS } from 'node:http'

/**
 * The most characters of a route that the name has. If this is larger, a warning is hard to read.
 * If it is smaller, the name lacks the route of more requests.
 */
const LONGEST_ROUTE = 200

/**
 * Returns `a POST request to /orders/:id`, or less if the method or the route is not known. The
 * route is the pattern that the application gave to Express.
 */
export function requestName(given: unknown): string {
  const { method, route } = Object(given) as { method?: unknown; route?: unknown }
  // A Request may have any word as its method.
  const isMethod = typeof method === 'string' && METHODS.includes(method)
  const { path } = Object(route) as { path?: unknown }
  const isRoute = typeof path === 'string' && path.length <= LONGEST_ROUTE
  return `a ${isMethod ? `${method} ` : ''}request${isRoute ? ` to ${path}` : ''}`
}
