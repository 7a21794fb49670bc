// @platformatic/kafka. What the programs of this folder do and print is said in tests/kit/foreign_client.py.
import { Admin, Producer, stringSerializers } from '@platformatic/kafka'
import { CHUNK, records, run, say, told } from './talk.js'

const COMPRESSIONS = ['none', 'gzip', 'snappy', 'lz4']

function options (bootstrapBrokers) {
  return { clientId: 'platformatic', bootstrapBrokers, retries: 60, retryDelay: 200 }
}

function newProducer (brokers) {
  return new Producer({ ...options(brokers), serializers: stringSerializers, idempotent: true, acks: -1 })
}

// It gives up when a broker refuses the connection: whoever uses it tries again.
async function again (attempt) {
  for (let left = 100; ; left--) {
    try {
      return await attempt()
    } catch (error) {
      if (left === 0) throw error
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  }
}

async function produce (brokers, topic) {
  const admin = new Admin(options(brokers))
  const configs = [{ name: 'min.insync.replicas', value: '2' }]
  const [created] = await admin.createTopics({ topics: [topic], partitions: 3, replicas: 3, configs })
  say('created', created.partitions)
  await admin.close()

  const producer = newProducer(brokers)
  let sent = 0
  const chunk = async compression => {
    const messages = records(sent).map(each => ({ topic, ...each }))
    await again(() => producer.send({ compression, messages }))
    sent += CHUNK
  }
  for (const compression of COMPRESSIONS) await chunk(compression)
  say('half', sent)
  const stop = told()
  while (!stop.is) await chunk('lz4')
  for (const compression of COMPRESSIONS) await chunk(compression)
  say('produced', sent)
  await producer.close()
}

run({ produce })
