-- verb: skip
-- from: success, error or canceled
-- to: the same
-- what: a finished job that was found in a waiting list is no longer queued; a running one is left alone
--
-- ARGV[1]  job model
-- ARGV[2]  ident
--
-- {'done', '', reindex}
-- {'refused'}    the job is not finished, or its end is being recorded: nothing is changed
-- {'gone'}

--@include claims

local _, pk = parse_ident(ARGV[2])
local job = {model = cjson.decode(ARGV[1]), pk = pk, ident = ARGV[2]}

local status = redis.call('HGET', hash_key(job.model, job.pk), 'status')
if redis.call('EXISTS', hash_key(job.model, job.pk)) == 0 then
  return {'gone'}
elseif status == 'w' or status == 'd' or status == 'r' or fenced_off(job, '') then
  return {'refused'}
end
update(job.model, job.pk, {queued = false})
return {'done', '', reindex}
