-- verb: finish canceled
-- from: running
-- to: canceled
-- what: its code or somebody else set the status to canceled while it ran; may claim the next job
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim, or '' for a job that nobody claimed
-- ARGV[4]  queue: model name and pk
-- ARGV[5…] the next claim: lists, token, lease, classes, as in claim.lua; or nothing
--
-- {'done', '', '', reindex, next claim}    as JSON
-- {'refused'}    somebody else holds the claim: nothing is changed
-- {'gone'}

--@include ending

local job, token, queue = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4]

local refused = refusal(job, token)
if refused then
  return ended_before(job, token, 'done', 5) or refused
end

end_claim(queue, job, {status = 'c', queued = false}, token)
return ended('done', '', '', 5)
