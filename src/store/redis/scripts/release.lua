-- Ends leases. KEYS has a lock for each request, ARGV a token.
-- Answers one value for each: 1 if the token held the lock, 2 if nobody did, 3 if somebody else does.
local KEYS, ARGV, call = KEYS, ARGV, redis.call

-- One by itself goes without the tables that many share.
if #KEYS == 1 then
  local owner = call('GET', KEYS[1])
  if not owner then return { 2 } end
  if owner ~= ARGV[1] then return { 3 } end
  call('DEL', KEYS[1])
  return { 1 }
end

local answers, ended, gone = {}, {}, {}
local owners = call('MGET', unpack(KEYS))
for i = 1, #KEYS do
  local lock, owner = KEYS[i], owners[i]
  if not owner or gone[lock] then
    answers[i] = 2
  elseif owner ~= ARGV[i] then
    answers[i] = 3
  else
    answers[i] = 1
    gone[lock] = true
    ended[#ended + 1] = lock
  end
end
if #ended > 0 then call('DEL', unpack(ended)) end
return answers
