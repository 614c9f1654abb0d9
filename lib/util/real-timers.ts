import * as timers from 'node:timers'

/**
 * The timers of Node, read at load time. A test that lets time stand still must not stop the
 * library's own work: fake clocks replace the global timers, some before this library is loaded.
 * Sinon also replaces those of `node:timers`, so install it after this library.
 */
export const { clearTimeout, setImmediate, setTimeout } = timers
