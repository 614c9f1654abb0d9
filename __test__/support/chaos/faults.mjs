// The faults of a server behind its relay (see masters.mjs). Each fault begins, lasts, and heals.

const fault = (name, begin, heal, least = 0) => ({ name, begin, heal, least })

/** The server dies, and comes back with the data on its disk. */
export const killed = fault(
  'killed',
  ({ server }) => server.kill(),
  ({ server }) => server.start(),
)

/**
 * The server dies, and comes back empty, but not before `ttl` ms and the drift of the clocks are
 * over. Otherwise, leases that it has forgotten could still be held.
 */
export const emptied = (ttl) =>
  fault(
    'emptied',
    ({ server }) => server.kill().then(() => server.forget()),
    ({ server }) => server.start(),
    ttl * 1.01 + 10,
  )

/** The server stands still, and then continues. */
export const frozen = fault(
  'frozen',
  ({ server }) => server.freeze(),
  ({ server }) => server.thaw(),
)

/**
 * The server loses all keys while it runs, so that held locks are granted again. No store may do
 * that.
 */
export const flushed = fault(
  'flushed',
  ({ server }) => server.ask('FLUSHALL'),
  () => {},
)

const heal = ({ relay }) => relay.heal()

/** The connections are reset, and new ones are refused. */
export const cut = fault(
  'cut',
  ({ relay }) => {
    relay.refuse()
    relay.cut('RST')
  },
  heal,
)

/** The connections are closed in the regular way, and new ones are accepted at once. */
export const dropped = fault('dropped', ({ relay }) => relay.cut('FIN'), heal)

/** Nothing arrives in either direction. */
export const silent = fault('silent', ({ relay }) => relay.bar(), heal)

/** The server gets no requests. They arrive at the heal, long after their senders have given up. */
export const deaf = fault('deaf', ({ relay }) => relay.bar(['toServer']), heal)

/** The server gets and executes requests, but no reply arrives. */
export const mute = fault('mute', ({ relay }) => relay.bar(['toClient']), heal)

/** Each message takes 30 ms longer, in both directions. */
export const slow = fault('slow', ({ relay }) => relay.slow(30), heal)

/**
 * A fault of a contending process (a child of child.mjs), not of a server: it stands still, and may
 * believe that it holds a lock that others get.
 */
export const paused = fault(
  'paused',
  ({ child }) => child.signal('SIGSTOP'),
  ({ child }) => child.signal('SIGCONT'),
)
