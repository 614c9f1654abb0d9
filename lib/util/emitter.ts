import { EventEmitter } from 'node:events'
import type * as api from '../../index'

type EventMap<Events> = Record<keyof Events, unknown[]>

/** Node's `EventEmitter`, typed as strictly as the public types: it refuses unknown event names. */
export const Emitter = EventEmitter as new <Events extends EventMap<Events>>() => api.Emitter<Events>
