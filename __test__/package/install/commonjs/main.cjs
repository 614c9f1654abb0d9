const leasehold = require('leasehold')
const { exercise } = require('./exercise.cjs')

async function main() {
  await exercise(leasehold, 'memory:install')
  await exercise(leasehold, `sqlite:${__dirname}/locks.db`)
  console.log('exercised')
}

main()
