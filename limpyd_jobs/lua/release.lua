-- verb: release
-- from: running
-- to: waiting
-- what: given back unharmed to the front of its list, the try not counted
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim
-- ARGV[4]  queue: model name and pk
--
-- {'done', '', reindex}
-- {'refused'}    somebody else holds the claim, or the job is no longer running: nothing is changed
-- {'gone'}

--@include claims

local _, pk = parse_ident(ARGV[2])
local job, token, queue = {model = cjson.decode(ARGV[1]), pk = pk, ident = ARGV[2]}, ARGV[3], ARGV[4]

local hash = redis.call('HMGET', hash_key(job.model, job.pk), 'status', 'tries')
if redis.call('EXISTS', hash_key(job.model, job.pk)) == 0 then
  return {'gone'}
elseif hash[1] ~= 'r' or fenced_off(job, token) then
  return {'refused'}
end

local tries = (tonumber(hash[2]) or 0) - 1
update(job.model, job.pk, end_claim(queue, job.ident, {
  status = 'w', start = false, tries = tries > 0 and string.format('%d', tries),
}))
redis.call('LPUSH', queue .. ':waiting', job.ident)
return {'done', '', reindex}
