// What can happen to a server behind its relay (see masters.mjs): each fault begins, lasts, and heals.

const fault = (name, begin, heal, least = 0) => ({ name, begin, heal, least })

/** The process dies, and comes back with what is on its disk. */
export const killed = fault(
  'killed',
  ({ server }) => server.kill(),
  ({ server }) => server.start(),
)

/**
 * It dies, and comes back with nothing; no sooner than after `ttl` ms and what clocks may differ, or leases that it has
 * forgotten could still be held.
 */
export const emptied = (ttl) =>
  fault(
    'emptied',
    ({ server }) => server.kill().then(() => server.forget()),
    ({ server }) => server.start(),
    ttl * 1.01 + 10,
  )

/** It stands still, and goes on where it was. */
export const frozen = fault(
  'frozen',
  ({ server }) => server.freeze(),
  ({ server }) => server.thaw(),
)

/** It loses everything while it runs, so that locks are given away while they are held: what no store must do. */
export const flushed = fault(
  'flushed',
  ({ server }) => server.ask('FLUSHALL'),
  () => {},
)

const heal = ({ relay }) => relay.heal()

/** Its connections are reset, and new ones refused. */
export const cut = fault(
  'cut',
  ({ relay }) => {
    relay.refuse()
    relay.cut('RST')
  },
  heal,
)

/** Its connections end in good order, and new ones are taken at once. */
export const dropped = fault('dropped', ({ relay }) => relay.cut('FIN'), heal)

/** Nothing arrives in either direction. */
export const silent = fault('silent', ({ relay }) => relay.bar(), heal)

/** It does not hear, and what was asked arrives when it heals: long after the one who asked has given up. */
export const deaf = fault('deaf', ({ relay }) => relay.bar(['toServer']), heal)

/** It hears and acts, but no answer arrives. */
export const mute = fault('mute', ({ relay }) => relay.bar(['toClient']), heal)

/** Everything takes 30 ms longer in each direction. */
export const slow = fault('slow', ({ relay }) => relay.slow(30), heal)

/** Not of a server, but of a process that contends (a child of child.mjs): it stands still, and may hold what others get. */
export const paused = fault(
  'paused',
  ({ child }) => child.signal('SIGSTOP'),
  ({ child }) => child.signal('SIGCONT'),
)
