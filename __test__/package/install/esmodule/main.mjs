import { fileURLToPath } from 'node:url'
import * as leasehold from 'leasehold'
import { createLockClient } from 'leasehold'
import { exercise } from './exercise.cjs'

if (createLockClient !== leasehold.createLockClient) throw new Error('two libraries')
await exercise(leasehold, 'memory:install')
await exercise(leasehold, `sqlite:${fileURLToPath(new URL('locks.db', import.meta.url))}`)
console.log('exercised')
