-- Lets leases live on. KEYS has a lock and its fence key for each request, ARGV a token and a ttl in ms.
-- Answers two values for each: 1 if the token holds the lock, 2 if nobody does, 3 if somebody else does, each with
-- a 0; or -1 and an error's text.
local HOUR = 3600000
local answers = {}

local function renew(lock, side, token, ttl)
  local owner = redis.pcall('GET', lock)
  if not owner then return 2, 0 end
  if type(owner) == 'table' then return -1, owner.err end
  if owner ~= token then return 3, 0 end
  local done = redis.pcall('PEXPIRE', lock, ttl)
  if type(done) == 'table' then return -1, done.err end
  -- The fence outlives the lease, and is never made to live shorter.
  local left = redis.call('PTTL', side)
  if left >= 0 and left < ttl + HOUR / 2 then
    redis.call('PEXPIRE', side, string.format('%.0f', ttl + HOUR))
  end
  return 1, 0
end

for i = 1, #KEYS / 2 do
  local code, value = renew(KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], ARGV[2 * i])
  answers[2 * i - 1] = code
  answers[2 * i] = value
end
return answers
